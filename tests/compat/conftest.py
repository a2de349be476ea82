"""The scripts in ``seeds`` and ``tutorials`` are run by tests, not collected."""

collect_ignore = ["seeds", "tutorials"]

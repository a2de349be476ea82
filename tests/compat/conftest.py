"""The scripts in ``seeds`` are run by tests, not collected."""

collect_ignore = ["seeds"]

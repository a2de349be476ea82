"""Models: where their weights and vocabularies live, how they load, how they work on whole columns."""

"""What a company might add to Tidegate: a package of its own, found through entry points."""

"""What docs/rules.md decides otherwise than the vectors, one module a topic; none of them imports the library."""

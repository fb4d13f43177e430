"""What goes over the wire: topics, messages, how records are partitioned and packed."""

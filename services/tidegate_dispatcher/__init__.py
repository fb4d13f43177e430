"""dispatcher: run requests and run events in, run commands out; Kafka first, Redis after."""

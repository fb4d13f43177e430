"""What several measurements need: servers, workloads, processes, feeding, receiving, results."""

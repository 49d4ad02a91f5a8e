"""What happens when a kernel is started: arrays, streams, calls, plans, loaded cubins and the driver."""

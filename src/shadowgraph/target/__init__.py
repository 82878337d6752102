"""The traced process: launching, stopping, reading and writing it, remote calls, injection."""

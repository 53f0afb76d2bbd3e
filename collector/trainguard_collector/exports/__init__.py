"""The newest samples for other systems: Prometheus reads them here, or a collector of OpenTelemetry gets them."""

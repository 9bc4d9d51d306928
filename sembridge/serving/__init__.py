"""From a serving request to the consumer surface that it implies (§2.2, §3.1)."""

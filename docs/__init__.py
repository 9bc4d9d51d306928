"""The documents, and what generates their reference part."""

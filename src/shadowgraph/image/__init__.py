"""What is on disk: ELF images, their functions, symbols, imports and unwind tables."""

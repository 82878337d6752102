"""What can be hooked and how: decoding, planning, relocation and thunks. Pure: bytes in, plan out."""

"""The linker: ELF object files become a shared object."""

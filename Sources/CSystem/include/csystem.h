#pragma once
// What Linux offers and Swift's Glibc module does not import: GNU extensions and macros.

/// Processors that the scheduler lets this process use; 0 where the kernel does not tell.
int csystem_allowed_processors(void);

/// Bounds the number of malloc arenas. Each thread gets one of its own otherwise, and none ever shrinks.
void csystem_bound_arenas(int count);

/// A file without a name in a folder, for reading and writing; -1 and errno where it cannot be had.
int csystem_unnamed_file(const char *folder);

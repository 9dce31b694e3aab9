#pragma once
// What Linux offers and Swift's Glibc module does not import: GNU extensions and macros.

/// Processors that the scheduler lets this process use; 0 where the kernel does not tell.
int csystem_allowed_processors(void);

/// Bounds the number of malloc arenas (each thread gets one of its own otherwise, and none ever shrinks), and has blocks
/// of at least `map_threshold` bytes mapped on their own, so that they go back to the system when freed. Without a fixed
/// threshold malloc raises it to 32 MiB by itself and keeps freed pictures in its arenas.
void csystem_bound_allocator(int arenas, int map_threshold);

/// The number of the file system that a path is on, as in `statfs`. Returns 0 or an error number.
int csystem_file_system(const char *path, unsigned *number);

/// Bytes that malloc has given out and that were not freed.
long long csystem_heap_bytes(void);

/// Lets a crash end the process without a word and without a core file.
void csystem_crash_quietly(void);

/// Gives what is free in malloc's arenas back to the system.
void csystem_release_memory(void);

/// A file without a name in a folder, for reading and writing; -1 and errno where it cannot be had.
int csystem_unnamed_file(const char *folder);

/// The same in memory.
int csystem_memory_file(void);

/// Renames a file unless something has the new name. Returns 0, EEXIST, EINVAL or ENOSYS where the file system or the
/// kernel cannot do it, or another error number.
int csystem_rename_new(const char *from, const char *to);

/// Whether the kernel knows that the clock is synchronised: 1 or 0, -1 where it does not tell.
int csystem_clock_state(void);

#pragma once

/// Gives the calling thread a stack of its own for handlers of faults, unless it has one.
void csystem_use_fault_stack(void);

// Every operation of the public API through a whole context, whatever carries it.
#pragma once

#include <hvd/core/context.hpp>

namespace hvd::test {

// All ranks call the same ones; each fails the current test when a result is wrong.

void check_allreduce(Context& context);
void check_broadcast(Context& context);
void check_allgather(Context& context);
/// Arrays of every type: all five operations, some ranks with nothing.
void check_arrays(Context& context);
/// As `check_arrays`, in sets of ranks that overlap.
void check_process_sets(Context& context);
void check_groups(Context& context);
void check_own_reductions(Context& context);
void check_messages(Context& context);

}  // namespace hvd::test

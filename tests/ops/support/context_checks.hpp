// Checks every operation of the public API through a whole context, with any backend.
#pragma once

#include <hvd/core/context.hpp>

namespace hvd::test {

// All ranks call the same functions. Each fails the current test when a result is wrong.

void check_allreduce(Context& context);
void check_broadcast(Context& context);
void check_allgather(Context& context);
/// Checks arrays of every type with all five operations, with some ranks without data.
void check_arrays(Context& context);
/// Does the same in process sets that overlap.
void check_process_sets(Context& context);
void check_groups(Context& context);
void check_own_reductions(Context& context);
void check_messages(Context& context);

}  // namespace hvd::test

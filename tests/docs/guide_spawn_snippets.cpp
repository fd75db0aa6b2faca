// Compiles the C++ of docs/how-to/spawn.md, as guide_snippets.cpp does.
#include <vector>

#include <hvd/spawn.hpp>

double parse_rate(int argc, char** argv);
double train(int rank, double rate);

#include "spawn_1.inc"

namespace guide {

double train(int rank);

void node_mode(int argc, char** argv, int gpus_per_node) {
#include "spawn_2.inc"
}

}  // namespace guide

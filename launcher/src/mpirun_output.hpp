// What mpirun writes when it tags lines, taken apart: the ranks' output, and its own messages.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "frames.hpp"
#include "job_policy.hpp"
#include "open_mpi.hpp"

namespace hvd::launcher {

/// Pure. "[1,2]<stdout>:text" is rank 2's "text", with a blank after the colon from Open MPI 5 on;
/// a tag may come in the middle of a line, when a rank's line is unfinished. A line without one is
/// mpirun's.
class MpirunOutput {
 public:
  MpirunOutput(int ranks, OpenMpi kind) : ranks_(ranks), kind_(kind) {}

  /// `bytes` of one of mpirun's streams, in any pieces.
  [[nodiscard]] std::vector<Output> feed(Stream stream, std::string_view bytes);
  /// What is left when there is no more.
  [[nodiscard]] std::vector<Output> finish();

  /// `outcome` of the mpirun process as one of its ranks, by what mpirun said about them, or as
  /// what kept it from starting them.
  struct Explanation {
    Outcome outcome;
    int pid = 0;  ///< of the culprit; 0: mpirun did not tell
  };
  [[nodiscard]] Explanation explain(const Outcome& outcome) const;

 private:
  struct Side {
    std::string held;  ///< what may be the beginning of a tag, or of a message
    int rank = -1;     ///< whose unfinished line this is; -1: at the beginning of a line
    Stream stream = Stream::out;
  };
  void take(Side& side, bool all, std::vector<Output>& to);
  void emit(const Side& side, std::string_view text, std::vector<Output>& to) const;

  int ranks_;
  OpenMpi kind_;
  std::array<Side, 2> sides_;
  std::string messages_;
};

}  // namespace hvd::launcher

// --output-filename: what every rank wrote, byte for byte, in a file per rank and stream.
#pragma once

#include <string>
#include <vector>

#include <hvd/core/fd.hpp>

#include "frames.hpp"

namespace hvd::launcher {

class OutputFiles {
 public:
  /// Creates DIR/rank.N/stdout and DIR/rank.N/stderr, empty unless they are there and to be
  /// appended to. Throws LaunchError (71).
  OutputFiles(const std::string& directory, int ranks, bool append);

  /// Throws LaunchError (71) when the disk is full, say.
  void write(int rank, Stream stream, std::string_view bytes);

 private:
  std::string directory_;
  std::vector<UniqueFd> files_;  ///< stdout and stderr of rank 0, of rank 1, …
};

}  // namespace hvd::launcher

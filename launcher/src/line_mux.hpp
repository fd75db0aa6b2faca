// Lines of many ranks on one stream, each line in one piece and with its rank in front.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "frames.hpp"

namespace hvd::launcher {

/// Pure: bytes in, bytes to write out. A line ends with '\n', '\r' or "\r\n", which are kept, so
/// that progress bars stay progress bars; bytes are never changed, so that UTF-8 stays whole.
class LineMux {
 public:
  using WallClock = std::chrono::system_clock;
  struct Options {
    bool prefix = true;
    bool timestamps = false;  ///< in front of the prefix
  };
  /// What is held back per rank until its line ends; a longer line goes out in pieces.
  static constexpr std::size_t kMaxHeld = std::size_t{64} << 10;

  LineMux(Stream stream, int ranks, Options options);

  [[nodiscard]] std::string feed(int rank, std::string_view bytes, WallClock::time_point now);
  /// The unfinished last line of every rank.
  [[nodiscard]] std::string finish(WallClock::time_point now);

 private:
  struct Line {
    std::string held;
    bool ended_with_return = false;  ///< a '\n' that follows belongs to the line before
  };
  void emit(int rank, std::string_view piece, WallClock::time_point now, std::string& out);
  [[nodiscard]] std::string prefix(int rank, WallClock::time_point now) const;

  std::string_view stream_name_;
  Options options_;
  std::vector<Line> lines_;  ///< by rank
  int open_rank_ = -1;       ///< whose unfinished line was written last
};

}  // namespace hvd::launcher

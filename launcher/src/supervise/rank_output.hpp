// Prepares the output of ranks for the user. LineMux writes the lines of many ranks to one stream,
// each in one piece and with its rank in front. Tail keeps the last lines of a rank for the report.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

enum class Stream : std::uint8_t { out, err };

/// The most bytes of output that are handed over at once.
inline constexpr std::size_t kMaxOutput = std::size_t{64} << 10;
/// The bytes of output that all ranks of a machine together may have in transit to the reader.
inline constexpr std::uint32_t kOutputWindow = 1U << 20;

/// Takes the bytes of ranks and returns the bytes to write. A line ends with '\n', '\r' or "\r\n",
/// which are kept, so that a progress bar still overwrites itself. Bytes are never changed, so that
/// UTF-8 stays valid.
class LineMux {
 public:
  using WallClock = std::chrono::system_clock;
  struct Options {
    bool prefix = true;
    bool timestamps = false;  ///< in front of the prefix
  };
  /// The bytes of an unfinished line that are held back per rank. A longer line is written in
  /// pieces.
  static constexpr std::size_t kMaxHeld = std::size_t{64} << 10;

  LineMux(Stream stream, int ranks, Options options);

  [[nodiscard]] std::string feed(int rank, std::string_view bytes, WallClock::time_point now);
  /// Returns the unfinished last line of a rank that has ended. If more of its output follows, that
  /// continues the line.
  [[nodiscard]] std::string flush(int rank, WallClock::time_point now);
  /// Returns the unfinished last line of every rank.
  [[nodiscard]] std::string finish(WallClock::time_point now);

 private:
  struct Line {
    std::string held;
    bool ended_with_return = false;  ///< a '\n' that follows belongs to the previous line
  };
  void emit(int rank, std::string_view piece, WallClock::time_point now, std::string& out);
  [[nodiscard]] std::string prefix(int rank, WallClock::time_point now) const;

  std::string_view stream_name_;
  Options options_;
  std::vector<Line> lines_;  ///< by rank
  int open_rank_ = -1;       ///< the rank whose unfinished line was written last; -1: none
};

/// The last lines that one rank wrote.
class Tail {
 public:
  static constexpr std::size_t kLines = 20;       ///< unless the constructor gets another number
  static constexpr std::size_t kMaxLine = 2'000;  ///< bytes; the rest of a longer line is left out

  struct Line {
    Stream stream = Stream::out;
    std::string text;  ///< without its line end; text before a '\r' is overwritten
  };

  explicit Tail(std::size_t lines = kLines) : most_(lines) {}

  void feed(Stream stream, std::string_view bytes);
  /// Returns the lines from the oldest on, both streams in order of arrival, unfinished lines last.
  [[nodiscard]] std::deque<Line> lines() const;

 private:
  struct Unfinished {
    std::string text;
    bool returned = false;  ///< a '\r' has arrived: the next character starts the line anew
  };
  void append(Unfinished& line, std::string_view text);
  void push(std::deque<Line>& lines, Line line) const;

  std::size_t most_;
  std::deque<Line> lines_;
  std::array<Unfinished, 2> unfinished_;
};

}  // namespace hvd::launcher

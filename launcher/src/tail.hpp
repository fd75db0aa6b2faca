// The last lines a rank wrote, for the report of its failure.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>

#include "frames.hpp"

namespace hvd::launcher {

class Tail {
 public:
  static constexpr std::size_t kLines = 20;
  static constexpr std::size_t kMaxLine = 2'000;  ///< bytes; what is beyond is left out

  struct Line {
    Stream stream = Stream::out;
    std::string text;  ///< without its end; after a '\r', what overwrote it
  };

  void feed(Stream stream, std::string_view bytes);
  /// Oldest first, both streams in order of arrival, unfinished lines last.
  [[nodiscard]] std::deque<Line> lines() const;

 private:
  struct Unfinished {
    std::string text;
    bool returned = false;  ///< a '\r' came: the next character starts the line anew
  };
  void append(Unfinished& line, std::string_view text);
  void push(std::deque<Line>& lines, Line line) const;

  std::deque<Line> lines_;
  std::array<Unfinished, 2> unfinished_;
};

}  // namespace hvd::launcher

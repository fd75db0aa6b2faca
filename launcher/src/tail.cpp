#include "tail.hpp"

#include <algorithm>
#include <utility>

namespace hvd::launcher {

void Tail::feed(Stream stream, std::string_view bytes) {
  Unfinished& line = unfinished_[static_cast<std::size_t>(stream)];
  while (!bytes.empty()) {
    const auto end = bytes.find_first_of("\r\n");
    append(line, bytes.substr(0, end));
    if (end == std::string_view::npos) return;
    if (bytes[end] == '\r') {
      line.returned = true;
    } else {
      push(lines_, {stream, std::exchange(line.text, {})});
      line.returned = false;
    }
    bytes.remove_prefix(end + 1);
  }
}

void Tail::append(Unfinished& line, std::string_view text) {
  if (text.empty()) return;
  if (std::exchange(line.returned, false)) line.text.clear();
  line.text += text.substr(0, kMaxLine - std::min(kMaxLine, line.text.size()));
}

void Tail::push(std::deque<Line>& lines, Line line) const {
  lines.push_back(std::move(line));
  if (lines.size() > kLines) lines.pop_front();
}

std::deque<Tail::Line> Tail::lines() const {
  auto all = lines_;
  for (const Stream stream : {Stream::out, Stream::err}) {
    const Unfinished& line = unfinished_[static_cast<std::size_t>(stream)];
    if (!line.text.empty()) push(all, {stream, line.text});
  }
  return all;
}

}  // namespace hvd::launcher

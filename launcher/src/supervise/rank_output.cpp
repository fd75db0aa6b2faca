#include "supervise/rank_output.hpp"

#include <algorithm>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace hvd::launcher {
namespace {

bool ends_line(std::string_view piece) {
  return !piece.empty() && (piece.back() == '\n' || piece.back() == '\r');
}

/// Returns the largest prefix of `text` that does not end inside a UTF-8 sequence.
std::string_view whole_characters(std::string_view text) {
  constexpr std::size_t kLongest = 4;
  for (std::size_t back = 1; back <= std::min(kLongest, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0U) == 0x80U) continue;  // a continuation: look for its start
    const std::size_t length = byte < 0x80U ? 1 : byte >= 0xF0U ? 4 : byte >= 0xE0U ? 3 : 2;
    return length > back ? text.substr(0, text.size() - back) : text;
  }
  return text;  // this is no UTF-8
}

}  // namespace

LineMux::LineMux(Stream stream, int ranks, Options options)
    : stream_name_(stream == Stream::out ? "stdout" : "stderr"),
      options_(options),
      lines_(static_cast<std::size_t>(ranks)) {}

std::string LineMux::feed(int rank, std::string_view bytes, WallClock::time_point now) {
  const auto index = static_cast<std::size_t>(rank);
  if (index >= lines_.size()) lines_.resize(index + 1);
  Line& line = lines_[index];
  std::string out;
  if (line.ended_with_return && bytes.starts_with('\n')) {
    out += '\n';
    bytes.remove_prefix(1);
  }
  if (!bytes.empty()) line.ended_with_return = false;

  while (!bytes.empty()) {
    const auto end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) break;
    std::size_t size = end + 1;
    if (bytes[end] == '\r' && size < bytes.size() && bytes[size] == '\n') ++size;
    line.ended_with_return = bytes[size - 1] == '\r' && size == bytes.size();
    const auto piece = bytes.substr(0, size);
    if (line.held.empty()) {
      emit(rank, piece, now, out);
    } else {
      line.held += piece;
      emit(rank, line.held, now, out);
      line.held.clear();
    }
    bytes.remove_prefix(size);
  }
  line.held += bytes;
  if (line.held.size() > kMaxHeld) {
    const auto piece = whole_characters(line.held);
    emit(rank, piece, now, out);
    line.held.erase(0, piece.size());
  }
  return out;
}

std::string LineMux::flush(int rank, WallClock::time_point now) {
  const auto index = static_cast<std::size_t>(rank);
  std::string out;
  if (index >= lines_.size() || lines_[index].held.empty()) return out;
  emit(rank, std::exchange(lines_[index].held, {}), now, out);
  return out;
}

std::string LineMux::finish(WallClock::time_point now) {
  std::string out;
  for (std::size_t rank = 0; rank < lines_.size(); ++rank) {
    out += flush(static_cast<int>(rank), now);
  }
  if (open_rank_ >= 0 && options_.prefix) out += '\n';
  open_rank_ = -1;
  return out;
}

void LineMux::emit(int rank, std::string_view piece, WallClock::time_point now, std::string& out) {
  if (options_.prefix && open_rank_ != rank) {
    if (open_rank_ >= 0) out += '\n';
    out += prefix(rank, now);
  }
  out += piece;
  open_rank_ = ends_line(piece) ? -1 : rank;
}

std::string LineMux::prefix(int rank, WallClock::time_point now) const {
  const auto text = fmt::format("[{}]<{}>:", rank, stream_name_);
  if (!options_.timestamps) return text;
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - seconds).count();
  return fmt::format("{:%Y-%m-%d %H:%M:%S}.{:03} {}", fmt::localtime(WallClock::to_time_t(seconds)),
                     ms, text);
}

// ---- the last lines

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
  if (lines.size() > most_) lines.pop_front();
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

#include "mpirun_output.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <regex>

#include <fmt/format.h>
#include <sys/wait.h>

#include "agent_loss.hpp"
#include "exit_codes.hpp"

namespace hvd::launcher {
namespace {

struct Tag {
  std::size_t size = 0;
  int rank = 0;
  Stream stream = Stream::out;
};

constexpr std::size_t kLongestTag = 40;
constexpr std::size_t kMaxMessages = std::size_t{64} << 10;

/// The digits at the beginning of `text`, which is shortened by them.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take_text(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

std::optional<Tag> tag_at(std::string_view text, int ranks, OpenMpi kind) {
  std::string_view rest = text;
  if (!take_text(rest, "[") || !take_number(rest) || !take_text(rest, ",")) return std::nullopt;
  const auto rank = take_number(rest);
  if (!rank || *rank >= ranks || !take_text(rest, "]<")) return std::nullopt;
  Tag tag{.size = 0, .rank = *rank, .stream = Stream::out};
  if (take_text(rest, "stderr>:")) {
    tag.stream = Stream::err;
  } else if (!take_text(rest, "stdout>:")) {
    return std::nullopt;
  }
  if (kind == OpenMpi::prrte && !take_text(rest, " ")) return std::nullopt;
  tag.size = text.size() - rest.size();
  return tag;
}

/// Where the next thing begins that is a tag, or may become one when more comes.
std::size_t next_tag(std::string_view text, int ranks, OpenMpi kind, bool all) {
  for (auto at = text.find('['); at != std::string_view::npos; at = text.find('[', at + 1)) {
    if (tag_at(text.substr(at), ranks, kind)) return at;
    if (!all && text.size() - at < kLongestTag && text.find('\n', at) == std::string_view::npos) {
      return at;
    }
  }
  return text.size();
}

}  // namespace

std::vector<Output> MpirunOutput::feed(Stream stream, std::string_view bytes) {
  std::vector<Output> pieces;
  Side& side = sides_[static_cast<std::size_t>(stream)];
  side.held += bytes;
  take(side, false, pieces);
  return pieces;
}

std::vector<Output> MpirunOutput::finish() {
  std::vector<Output> pieces;
  for (Side& side : sides_) take(side, true, pieces);
  return pieces;
}

void MpirunOutput::take(Side& side, bool all, std::vector<Output>& to) {
  std::string_view text = side.held;
  while (!text.empty()) {
    if (const auto tag = tag_at(text, ranks_, kind_)) {
      side.rank = tag->rank;
      side.stream = tag->stream;
      text.remove_prefix(tag->size);
      continue;
    }
    const auto line_end = text.find('\n');
    if (side.rank >= 0) {
      auto size = std::min(line_end == std::string_view::npos ? text.size() : line_end + 1,
                           next_tag(text, ranks_, kind_, all));
      if (size == 0 && all) size = text.size();
      if (size == 0) break;  // the beginning of a tag, perhaps
      emit(side, text.substr(0, size), to);
      if (text[size - 1] == '\n') side.rank = -1;
      text.remove_prefix(size);
    } else {
      if (line_end == std::string_view::npos && !all) break;
      const auto size = line_end == std::string_view::npos ? text.size() : line_end + 1;
      messages_ += text.substr(0, size);
      if (messages_.size() > kMaxMessages) messages_.erase(0, messages_.size() - kMaxMessages);
      text.remove_prefix(size);
    }
  }
  side.held = std::string(text);
}

void MpirunOutput::emit(const Side& side, std::string_view text, std::vector<Output>& to) const {
  const auto bytes = std::as_bytes(std::span(text));
  to.push_back({.rank = side.rank, .stream = side.stream, .bytes = {bytes.begin(), bytes.end()}});
}

MpirunOutput::Explanation MpirunOutput::explain(const Outcome& outcome) const {
  Explanation result{.outcome = outcome, .pid = 0};
  if (!outcome.culprit) return result;
  RankEnd& culprit = *result.outcome.culprit;
  // "[[5088,1],2]", and "[prterun-node7-123@1,2]" from Open MPI 5 on, which also breaks lines. No
  // number of theirs is longer than an int.
  static const std::regex kExited(R"(Process name: \[\S+,(\d{1,9})\]\s+Exit code:\s+(\d{1,9})\b)");
  static const std::regex kKilled(
      R"(process\s+rank\s+(\d{1,9})\s+with\s+PID\s+(\d{1,9})\s+on\s+node\s+\S+\s+exited\s+on\s+signal\s+(\d{1,9})\b)");
  static const std::regex kNoProgram(R"(could\s+not\s+access)");
  std::smatch match;
  if (std::regex_search(messages_, match, kExited)) {
    culprit.rank = std::min(std::stoi(match[1]), ranks_ - 1);
    culprit.status = W_EXITCODE(std::stoi(match[2]) & 0xff, 0);
  } else if (std::regex_search(messages_, match, kKilled)) {
    culprit.rank = std::min(std::stoi(match[1]), ranks_ - 1);
    culprit.status = std::stoi(match[3]) & 0x7f;
    result.pid = std::stoi(match[2]);
  } else {
    // No rank: it could not start them.
    const bool no_program = std::regex_search(messages_, kNoProgram);
    const bool no_host = messages_.find("unable to reliably start") != std::string::npos ||
                         messages_.find("daemon failed to report back") != std::string::npos ||
                         messages_.find("ssh: ") != std::string::npos;
    result.outcome.code = no_program ? kExitNotFound
                          : no_host  ? kExitHostUnreachable
                                     : outcome.code;
    result.outcome.trouble =
        fmt::format("mpirun exited {}:\n{}", exit_code(culprit.status), messages_);
    while (result.outcome.trouble.ends_with('\n')) result.outcome.trouble.pop_back();
    result.outcome.culprit.reset();
    return result;
  }
  result.outcome.code = exit_code(culprit.status);
  return result;
}

}  // namespace hvd::launcher

// Plays what hvdrun hears from ssh: the text of a login shell, the greeting of an agent, frames,
// and anything else.
#include <array>
#include <string>
#include <string_view>

#include <sys/socket.h>
#include <unistd.h>

#include "check.hpp"
#include "transport/agent_stream.hpp"

namespace {

using namespace hvd::launcher;
using hvd::UniqueFd;
using hvd::fuzz::check;

constexpr std::string_view kGreeting = "hvdrun-agent ";

/// Returns a socket that gives `bytes`, and then its end.
UniqueFd socket_with(std::span<const std::byte> bytes) {
  std::array<int, 2> ends{};
  check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  UniqueFd near(ends[0]);
  const UniqueFd far(ends[1]);
  const ssize_t sent = ::send(far.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  check(sent == static_cast<ssize_t>(bytes.size()));
  return near;
}

/// Says whether a frame of this text claims to be so large that memory for it would take most of
/// the fuzzer's time.
bool has_large_frame(std::span<const std::byte> frames) {
  while (frames.size() >= sizeof(std::uint32_t)) {
    hvd::WireReader reader(frames, "frames");
    const std::size_t length = reader.u32();
    if (length > kMaxFrame) return false;
    if (length > reader.remaining()) return length > 1 << 16;
    frames = frames.subspan(sizeof(std::uint32_t) + length);
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 1 << 14) return 0;  // a socket holds it
  const auto bytes = hvd::fuzz::input(data, size);
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::size_t greeting = text.find(kGreeting);
  const std::size_t line_end = greeting == std::string::npos ? greeting : text.find('\n', greeting);
  const bool greets = line_end != std::string::npos;
  if (greets && has_large_frame(bytes.subspan(line_end + 1))) return 0;
  boost::asio::io_context io;
  UniqueFd input = socket_with(bytes);
  UniqueFd output(::dup(input.get()));
  AgentStream stream(io, std::move(input), std::move(output));
  std::string after;  // the frames that arrived
  int greetings = 0;
  int ends = 0;
  const auto on_frame = [&](const Frame& frame) {
    check(ends == 0);
    const hvd::Bytes again = encode(frame);
    after.append(reinterpret_cast<const char*>(again.data()), again.size());
  };
  const auto on_greeting = [&](const std::string& version) {
    check(++greetings == 1 && greets);
    check(kGreeting.size() + version.size() == line_end - greeting);
    const std::string rest = text.substr(line_end + 1);
    stream.start(on_frame, [&, rest](const std::string& why) {
      ++ends;
      check(rest.starts_with(after) && (!why.empty() || rest == after));
    });
  };
  stream.await_greeting(on_greeting, [&](const std::string& heard) {
    ++ends;
    check(heard == text);
  });
  io.run();
  check(ends == 1 && (greetings == 1) == greets);
  return 0;
}

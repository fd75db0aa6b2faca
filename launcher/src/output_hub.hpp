// Where the output of all ranks goes: hvdrun's stdout and stderr, the files asked for, and the last
// lines kept for the report. Bounds what is held back for a slow reader.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "frames.hpp"
#include "line_mux.hpp"
#include "output_files.hpp"
#include "sink.hpp"
#include "tail.hpp"

namespace hvd::launcher {

class OutputHub {
 public:
  struct Options {
    int ranks = 1;
    LineMux::Options lines;
    std::string directory;  ///< empty: no files
    bool append = false;    ///< to the files of an earlier try
  };
  /// Called when there is room for more: credit that was held back may go out.
  using OnRoom = std::function<void()>;
  /// Called when writing to `Stream` failed; its output is dropped from now on.
  using OnError = std::function<void(Stream, std::error_code)>;

  /// Throws LaunchError when a file cannot be created.
  OutputHub(boost::asio::io_context& io, Options options);
  void start(OnRoom on_room, OnError on_error);

  /// Throws LaunchError when a file cannot be written.
  void add(const Output& output);
  /// Unfinished lines of all ranks.
  void finish();
  /// Whole lines of hvdrun's own, on stderr.
  void say(std::string_view lines);

  [[nodiscard]] std::deque<Tail::Line> tail(int rank) const;
  /// Whether the readers are keeping up.
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] bool flushed() const noexcept;

 private:
  static constexpr std::size_t kRoom = std::size_t{256} << 10;  // bytes queued before we hold back

  struct Channel {
    Channel(boost::asio::io_context& io, Stream stream, int ranks, LineMux::Options lines);
    LineMux lines;
    Sink sink;
  };
  [[nodiscard]] Channel& channel(Stream stream) { return stream == Stream::out ? out_ : err_; }

  Channel out_;
  Channel err_;
  std::optional<OutputFiles> files_;
  std::vector<Tail> tails_;  ///< by rank
};

}  // namespace hvd::launcher

// Distributes the output of all ranks to hvdrun's stdout and stderr, to files, and to the last
// lines that the report quotes. Limits the memory that a slow reader costs.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "job/file_writer.hpp"
#include "job/sink.hpp"
#include "supervise/rank_output.hpp"
#include "transport/frames.hpp"

namespace hvd::launcher {

/// Implements --output-filename, with a file per rank and stream that holds the unchanged output.
class OutputFiles {
 public:
  /// Creates DIR/rank.N/stdout and DIR/rank.N/stderr. Existing files are emptied unless `append`.
  /// `writer` outlives this object; `on_error` is called as in FileWriter, once for each file.
  /// Throws LaunchError (71).
  OutputFiles(const std::string& directory, int ranks, bool append, FileWriter& writer,
              const FileWriter::OnError& on_error);

  /// Queues the bytes. Throws as `FileWriter::write` does.
  void write(int rank, Stream stream, std::string_view bytes);

 private:
  FileWriter& writer_;
  std::size_t first_ = 0;  ///< the writer's number of rank 0's stdout; the others follow
};

class OutputHub {
 public:
  struct Options {
    int ranks = 1;
    LineMux::Options lines;
    std::string directory;  ///< empty: no files
    bool append = false;    ///< to the files of an earlier try
    std::size_t tail_lines = Tail::kLines;
  };
  /// Called when there is room for more output, so that agents may get more credit.
  using OnRoom = std::function<void()>;
  /// Called when writing to `target` ("stdout", "stderr", or the directory in quotes) has failed.
  /// From then on, output to it is dropped.
  using OnError = std::function<void(const std::string& target, std::error_code)>;

  /// Throws LaunchError when a file cannot be created.
  OutputHub(boost::asio::io_context& io, Options options);
  void start(OnRoom on_room, OnError on_error);

  /// Queues the bytes for the stream, the file and the tail. Throws LaunchError (71), as
  /// `FileWriter::write` does.
  void add(const Output& output);
  /// Writes the unfinished lines of all ranks.
  void finish();
  /// Writes whole lines to stderr, which are hvdrun's own.
  void say(std::string_view lines);

  [[nodiscard]] std::deque<Tail::Line> tail(int rank) const;
  /// Returns whether readers and file systems are keeping up.
  [[nodiscard]] bool has_room() const noexcept;
  [[nodiscard]] bool flushed() const noexcept;

 private:
  /// While a queue holds this many bytes, agents get no more credit.
  static constexpr std::size_t kRoom = std::size_t{256} << 10;

  struct Channel {
    Channel(boost::asio::io_context& io, Stream stream, const Options& options, FileWriter& writer);
    LineMux lines;
    Sink sink;
  };
  [[nodiscard]] Channel& channel(Stream stream) { return stream == Stream::out ? out_ : err_; }

  OnError on_error_;
  FileWriter writer_;
  Channel out_;
  Channel err_;
  std::optional<OutputFiles> files_;
  std::vector<Tail> tails_;  ///< by rank
};

}  // namespace hvd::launcher

#include <cstring>
#include <limits>
#include <optional>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/checkpoint.hpp>
#include <hvd/torch/object.hpp>

#include "archive_bytes.hpp"
#include "atomic_file.hpp"
#include "digest.hpp"

namespace hvd {

namespace {

// After the archive: LibTorch's reader looks for the end of an archive from behind and passes it
// over.
constexpr std::string_view kMark = "hvd-checkpoint-1";
constexpr std::size_t kLongestText = std::size_t{1} << 20;
constexpr std::size_t kFooterBytes = kMark.size() + sizeof(std::uint64_t);

std::uint64_t digest_of(std::span<const std::byte> bytes) {
  Digest digest;
  digest.add_elements(bytes, 1);
  return digest.value();
}

Bytes with_footer(Bytes bytes) {
  WireWriter footer;
  footer.u64(digest_of(bytes));
  footer.raw(std::as_bytes(std::span(kMark)));
  const Bytes end = footer.take();
  bytes.insert(bytes.end(), end.begin(), end.end());
  return bytes;
}

void require_whole(std::span<const std::byte> bytes, const std::filesystem::path& path) {
  const auto damaged = [&path](std::string_view why) {
    throw Error(Errc::protocol,
                fmt::format("the checkpoint {} is damaged: {}", path.string(), why));
  };
  if (bytes.size() < kFooterBytes) damaged("too short");
  WireReader footer(bytes.last(kFooterBytes), "checkpoint");
  const std::uint64_t wanted = footer.u64();
  const auto mark = footer.raw(kMark.size());
  if (std::memcmp(mark.data(), kMark.data(), kMark.size()) != 0) damaged("it has no end mark");
  if (digest_of(bytes.first(bytes.size() - kFooterBytes)) != wanted) {
    damaged("its digest is not that of its content");
  }
}

/// What rank 0 did, told to all: throws its error on every rank.
class Outcome {
 public:
  void set(const Error& error) {
    code_ = error.code();
    text_ = error.what();
  }
  template <class Function>
  void attempt(Function function) {
    try {
      function();
    } catch (const Error& error) {
      set(error);
    } catch (const c10::Error& error) {
      set(Error(Errc::invalid_argument, error.what_without_backtrace()));
    } catch (const std::exception& error) {
      set(Error(Errc::invalid_argument, error.what()));
    }
  }
  void share(Context& context) {
    WireWriter writer;
    writer.u8(code_ ? 1 : 0);
    if (code_) {
      writer.u8(static_cast<std::uint8_t>(*code_));
      writer.text(text_);
    }
    const Bytes received =
        broadcast_object(context, writer.take(), 0, {.name = "checkpoint/outcome"});
    WireReader reader(received, "checkpoint outcome");
    if (reader.u8() == 0) return;
    const auto code = static_cast<Errc>(reader.u8());
    throw Error(code, reader.text(kLongestText));
  }

 private:
  std::optional<Errc> code_;
  std::string text_;
};

/// Every rank sees what all have read, and whether they could load it: the first trouble, in words.
std::string problem_of_any(Context& context, std::uint64_t digest, const std::string& trouble) {
  WireWriter mine;
  mine.u64(digest);
  mine.text(trouble);
  const std::vector<Bytes> all =
      allgather_object(context, mine.take(), {.name = "checkpoint/loaded"});
  std::uint64_t first = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    WireReader reader(all[rank], "checkpoint report");
    const std::uint64_t read = reader.u64();
    if (rank == 0) first = read;
    const std::string text = reader.text(kLongestText);
    if (!text.empty()) return fmt::format("rank {} could not load it: {}", rank, text);
    if (read != first) return fmt::format("rank {} received other bytes than rank 0 read", rank);
  }
  return {};
}

}  // namespace

void save_checkpoint_archive(Context& context, const std::filesystem::path& path,
                             const SaveState& save, const std::function<void()>& help) {
  Outcome outcome;
  if (context.rank() == 0) {
    outcome.attempt([&] {
      torch::serialize::OutputArchive archive;
      save(archive);
      write_atomically(path, with_footer(bytes_of(archive)));
    });
  }
  std::exception_ptr own;
  try {
    if (context.rank() != 0 && help) help();
  } catch (...) {
    own = std::current_exception();
  }
  outcome.share(context);
  if (own) std::rethrow_exception(own);
}

void load_checkpoint_archive(Context& context, const std::filesystem::path& path,
                             const LoadState& load) {
  Outcome reading;
  Bytes bytes;
  if (context.rank() == 0) {
    reading.attempt([&] {
      bytes = read_file(path);
      require_whole(bytes, path);
      bytes.resize(bytes.size() - kFooterBytes);
    });
  }
  reading.share(context);
  bytes = broadcast_object(
      context, bytes, 0,
      {.name = "checkpoint/bytes", .max_bytes = std::numeric_limits<std::int64_t>::max()});
  std::exception_ptr own;
  std::string text;
  try {
    torch::serialize::InputArchive archive =
        archive_of(bytes, fmt::format("the checkpoint {}", path.string()));
    load(archive);
  } catch (const c10::Error& error) {
    own = std::current_exception();
    text = error.what_without_backtrace();
  } catch (const std::exception& error) {
    own = std::current_exception();
    text = error.what();
  }
  const std::string problem = problem_of_any(context, digest_of(bytes), text);
  if (own) std::rethrow_exception(own);
  if (!problem.empty()) {
    throw Error(Errc::mismatch, fmt::format("the checkpoint {}: {}", path.string(), problem));
  }
}

}  // namespace hvd

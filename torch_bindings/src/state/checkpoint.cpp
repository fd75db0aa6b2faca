#include <cstring>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>

#include <fmt/format.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/checkpoint.hpp>
#include <hvd/torch/internal/checkpoint_bytes.hpp>
#include <hvd/torch/object.hpp>

#include "collectives/archive_bytes.hpp"
#include "state/agreement.hpp"
#include "state/atomic_file.hpp"
#include "state/digest.hpp"

namespace hvd {

using namespace detail;

namespace {

// The footer follows the archive. LibTorch's reader searches backwards from the end of the file for
// the end of the archive, and so skips the footer.
constexpr std::string_view kMark = "hvd-checkpoint-1";
constexpr std::size_t kFooterBytes = kMark.size() + sizeof(std::uint64_t);

std::uint64_t digest_of_bytes(std::span<const std::byte> bytes) {
  Digest digest;
  digest.add_elements(bytes, 1);
  return digest.value();
}

Bytes with_footer(Bytes bytes) {
  WireWriter footer;
  footer.u64(digest_of_bytes(bytes));
  footer.raw(std::as_bytes(std::span(kMark)));
  const Bytes end = footer.take();
  bytes.insert(bytes.end(), end.begin(), end.end());
  return bytes;
}

/// Returns the content without the footer, whose digest it checks.
std::span<const std::byte> checked_content(std::span<const std::byte> bytes,
                                           const std::string& what) {
  const auto damaged = [&what](std::string_view why) {
    throw Error(Errc::protocol, fmt::format("{} is damaged: {}", what, why));
  };
  if (bytes.size() < kFooterBytes) damaged("too short");
  WireReader footer(bytes.last(kFooterBytes), "checkpoint");
  const std::uint64_t wanted = footer.u64();
  const auto mark = footer.raw(kMark.size());
  if (std::memcmp(mark.data(), kMark.data(), kMark.size()) != 0) damaged("it has no end mark");
  const auto content = bytes.first(bytes.size() - kFooterBytes);
  if (digest_of_bytes(content) != wanted) damaged("its digest is not that of its content");
  return content;
}

/// Exchanges the digest of the bytes that each rank received, and its error, if any. Returns the
/// text of the first rank's problem, or an empty text. Collective.
std::string problem_of_any_rank(Context& context, std::uint64_t digest, const std::string& error) {
  WireWriter mine;
  mine.u64(digest);
  mine.text(error);
  const std::vector<Bytes> all =
      allgather_object(mine.take(), {.name = "checkpoint/loaded", .context = &context});
  std::uint64_t first = 0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    WireReader reader(all[rank], "checkpoint report");
    const std::uint64_t read = reader.u64();
    if (rank == 0) first = read;
    const std::string text = reader.text(kLongestReport);
    if (!text.empty()) return fmt::format("rank {} could not load it: {}", rank, text);
    if (read != first) return fmt::format("rank {} received other bytes than rank 0 read", rank);
  }
  return {};
}

}  // namespace

Bytes to_checkpoint(torch::serialize::OutputArchive& archive) {
  return with_footer(bytes_of(archive));
}

torch::serialize::InputArchive from_checkpoint(std::span<const std::byte> bytes,
                                               const std::string& what) {
  return archive_of(checked_content(bytes, what), what);
}

void save_checkpoint_bytes(const WriteCheckpoint& write, const SaveState& save,
                           const std::function<void()>& help, Context& context) {
  // A step returns before its reduction has ended on the device. If the reduction fails, the
  // parameters are wrong, and must not replace a file. A barrier ends after all such operations.
  barrier({.name = "checkpoint/reduced", .context = &context});
  Outcome outcome;
  if (context.rank() == 0) {
    outcome.attempt([&] {
      torch::serialize::OutputArchive archive;
      save(archive);
      write(to_checkpoint(archive));
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

void load_checkpoint_bytes(const std::string& what, const std::function<Bytes()>& read,
                           const LoadState& load, Context& context,
                           std::optional<torch::Device> device) {
  Outcome reading;
  Bytes bytes;
  if (context.rank() == 0) {
    reading.attempt([&] {
      bytes = read();
      bytes.resize(checked_content(bytes, what).size());
    });
  }
  reading.share(context);
  bytes = broadcast_object(bytes, 0,
                           {.name = "checkpoint/bytes",
                            .max_bytes = std::numeric_limits<std::int64_t>::max(),
                            .context = &context});
  std::optional<Error> own;
  try {
    torch::serialize::InputArchive archive = archive_of(bytes, "the archive in it", device);
    load(archive);
  } catch (const std::exception&) {
    own = as_error(std::current_exception());
  }
  const std::string problem =
      problem_of_any_rank(context, digest_of_bytes(bytes), own ? own->what() : "");
  if (!own && problem.empty()) return;
  throw Error(own ? own->code() : Errc::mismatch,
              fmt::format("{}: {}", what, own ? own->what() : problem));
}

void save_checkpoint_archive(const std::filesystem::path& path, const SaveState& save,
                             const std::function<void()>& help, Context& context) {
  save_checkpoint_bytes(
      [&path](std::span<const std::byte> bytes) { write_atomically(path, bytes); }, save, help,
      context);
}

void load_checkpoint_archive(const std::filesystem::path& path, const LoadState& load,
                             Context& context, std::optional<torch::Device> device) {
  load_checkpoint_bytes(
      fmt::format("the checkpoint {}", path.string()), [&path] { return read_file(path); }, load,
      context, device);
}

namespace detail {

void load_checkpoint_part(torch::serialize::InputArchive& archive, int index,
                          const LoadState& load) {
  const auto refuse = [index](std::string_view why) {
    throw Error(Errc::invalid_argument,
                fmt::format("part {} does not fit what it is loaded into: {}", index, why));
  };
  try {
    torch::serialize::InputArchive part;
    if (!archive.try_read(std::to_string(index), part)) refuse("there is no such part");
    load(part);
  } catch (const Error&) {
    throw;
  } catch (const c10::Error& error) {
    const std::string_view text = error.what_without_backtrace();
    // LibTorch reports a missing entry by a failed assertion.
    const bool asserted = text.find("INTERNAL ASSERT") != std::string_view::npos;
    refuse(asserted ? "it is of another kind" : text);
  } catch (const std::exception& error) {
    refuse(error.what());
  }
}

void require_same_kind(const torch::nn::Module& module, torch::serialize::InputArchive& archive) {
  const auto compare = [&archive](const auto& named, bool are_buffers) {
    for (const auto& item : named) {
      const torch::Tensor& here = item.value();
      torch::Tensor saved;
      if (!here.defined() || !archive.try_read(item.key(), saved, are_buffers)) continue;
      if (saved.sizes() == here.sizes() && saved.scalar_type() == here.scalar_type()) continue;
      std::ostringstream text;
      text << item.key() << " is " << saved.sizes() << ' ' << saved.scalar_type() << ", not "
           << here.sizes() << ' ' << here.scalar_type();
      throw std::invalid_argument(text.str());
    }
  };
  compare(module.named_parameters(/*recurse=*/false), false);
  compare(module.named_buffers(/*recurse=*/false), true);
  for (const auto& child : module.named_children()) {
    torch::serialize::InputArchive inner;
    if (!archive.try_read(child.key(), inner)) continue;
    try {
      require_same_kind(*child.value(), inner);
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}.{}", child.key(), error.what()));
    }
  }
}

}  // namespace detail
}  // namespace hvd

// Saves state in a file, which rank 0 writes, and loads it on all ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include <torch/serialize.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/load_in_place.hpp>
#include <hvd/torch/verify.hpp>

namespace hvd {

using SaveState = std::function<void(torch::serialize::OutputArchive&)>;
using LoadState = std::function<void(torch::serialize::InputArchive&)>;

/// Waits until all operations of `context` that were launched before have ended, since one that
/// fails on a GPU leaves wrong values. Then rank 0 calls `save` and writes the archive to `path`.
/// The other ranks call `help`, if there is one, for the collectives that `save` takes part in.
/// Rank 0 writes a temporary file beside `path`, flushes it to the disk and renames it. So `path`
/// is the old checkpoint or the new one at every moment, also after a crash, and the new one when
/// this returns. The file is an archive that `torch::load` reads too, followed by a digest.
/// Collective. Every rank throws the same error: Errc::resource when the file cannot be written,
/// Errc::invalid_argument with what `save` threw, or that of an earlier operation.
void save_checkpoint_archive(const std::filesystem::path& path, const SaveState& save,
                             const std::function<void()>& help = nullptr,
                             Context& context = hvd::context());

/// Rank 0 reads `path` and sends its bytes to the other ranks, which need no access to the file.
/// Then every rank calls `load` on the archive, whose tensors are on `device`, or by default where
/// rank 0 saved them. Collective. All errors name the file, and every rank throws one of these:
/// - Errc::resource: the file is missing or cannot be read.
/// - Errc::protocol: the digest is not that of the content, or the archive contains program code,
///   which is never run.
/// - the code of the `Error` that `load` threw on this rank.
/// - Errc::invalid_argument: `load` threw another exception on this rank.
/// - Errc::mismatch: `load` threw on another rank, and the message contains the text of that
///   exception; or a rank received other bytes than rank 0 sent.
void load_checkpoint_archive(const std::filesystem::path& path, const LoadState& load,
                             Context& context = hvd::context(),
                             std::optional<torch::Device> device = std::nullopt);

namespace detail {

/// Reads part `index` of the archive. Throws what `load` throws, and Errc::invalid_argument with
/// the number of the part for what LibTorch's reader throws.
void load_checkpoint_part(torch::serialize::InputArchive& archive, int index,
                          const LoadState& load);

/// Throws std::invalid_argument with the first tensor of the module that has another shape or dtype
/// in the archive, because LibTorch's reader accepts it. That reader reports missing tensors
/// itself.
void require_same_kind(const torch::nn::Module& module, torch::serialize::InputArchive& archive);

/// A part whose `save` is collective and fills rank 0's archive, such as a `ShardedOptimizer`.
template <class Part>
concept SavedByAllRanks = requires {
  requires Part::kSaveIsCollective;
};

}  // namespace detail

/// Saves one or more objects that `torch::save` takes: a module, its optimizer, a sampler. All
/// ranks save a `ShardedOptimizer` together. Collective. Throws what `save_checkpoint_archive`
/// throws.
template <class... Parts>
void save_checkpoint(Context& context, const std::filesystem::path& path, const Parts&... parts) {
  const auto save = [&](torch::serialize::OutputArchive& archive) {
    const auto write = [&](int index, const auto& part) {
      using torch::operator<<;  // argument-dependent lookup does not find it for tensors
      torch::serialize::OutputArchive one(archive.compilation_unit());
      one << part;
      archive.write(std::to_string(index), one);
    };
    // The collective parts come first, so that the other ranks have done their share when another
    // part cannot be saved.
    for (const bool collective : {true, false}) {
      int index = 0;
      ((detail::SavedByAllRanks<Parts> == collective ? write(index++, parts) : void(index++)), ...);
    }
  };
  const auto help = [&] {
    const auto take_part = [](const auto& part) {
      torch::serialize::OutputArchive empty;
      if constexpr (detail::SavedByAllRanks<std::decay_t<decltype(part)>>) part.save(empty);
    };
    (take_part(parts), ...);
  };
  save_checkpoint_archive(path, save, help, context);
}

/// Loads the same parts in the same order. Modules and tensors stay on the devices where they are
/// on this rank, the state of LibTorch's optimizers goes to those of their parameters, and other
/// parts find their tensors on the CPU. Collective. Afterwards the ranks compare the modules by a
/// digest of each tensor, and every rank throws Errc::mismatch, which names the first tensor that
/// differs. Also throws what `load_checkpoint_archive` throws. When anything fails on any rank,
/// modules get back the values that they had before; optimizers and samplers that come before the
/// failed part keep what was loaded.
template <class... Parts>
void load_checkpoint(Context& context, const std::filesystem::path& path, Parts&... parts) {
  detail::TensorValues before;
  const auto keep = [&before]<class Part>(const Part& part) {
    if constexpr (ModulePointer<Part>) before.keep(NamedTensors::of(*part));
  };
  (keep(parts), ...);
  const auto read = []<class Part>(Part& part) {
    return [&part](torch::serialize::InputArchive& archive) {
      if constexpr (ModulePointer<Part>) detail::require_same_kind(*part, archive);
      detail::load_in_place(archive, part);
    };
  };
  const auto compare = [&]<class Part>(const Part& part) {
    if constexpr (ModulePointer<Part>) {
      const Verification same = verify(NamedTensors::of(*part), context);
      if (!same) throw Error(Errc::mismatch, "load_checkpoint: " + same.first_difference);
    }
  };
  try {
    load_checkpoint_archive(
        path,
        [&](torch::serialize::InputArchive& archive) {
          int index = 0;
          (detail::load_checkpoint_part(archive, index++, read(parts)), ...);
        },
        context, torch::kCPU);
    (compare(parts), ...);
  } catch (...) {
    before.restore();
    throw;
  }
}

/// Does the same on the default context.
template <class... Parts>
void save_checkpoint(const std::filesystem::path& path, const Parts&... parts) {
  save_checkpoint(context(), path, parts...);
}
template <class... Parts>
void load_checkpoint(const std::filesystem::path& path, Parts&... parts) {
  load_checkpoint(context(), path, parts...);
}

}  // namespace hvd

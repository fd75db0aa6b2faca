// State on disk, written once and read by all ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <torch/serialize.h>

#include <hvd/hvd.hpp>
#include <hvd/torch/verify.hpp>

namespace hvd {

using SaveState = std::function<void(torch::serialize::OutputArchive&)>;
using LoadState = std::function<void(torch::serialize::InputArchive&)>;

/// Rank 0 calls `save`, all others `help` if there is one, for what `save` needs of them. Rank 0
/// writes the archive to `path`: into a temporary file beside it, which is
/// flushed to the disk and then takes its name, so that at any moment, also of a crash, `path` is
/// the old checkpoint or the new one. The file is an archive that `torch::load` reads too, with a
/// digest behind it. Collective; when it returns the file is there for certain.
/// Throws the same on every rank: Errc::resource (the file cannot be written), or
/// Errc::invalid_argument with what `save` threw.
void save_checkpoint_archive(Context& context, const std::filesystem::path& path,
                             const SaveState& save, const std::function<void()>& help = nullptr);

/// Rank 0 reads `path` and the others get its bytes, so they need not see the file; then every rank
/// calls `load` on the archive. Collective. Throws on every rank: Errc::resource (the file is
/// missing or cannot be read), Errc::protocol (damaged: its digest is not that of its content; or
/// an archive with code in it, which is never run), the code of what `load` threw here
/// (Errc::invalid_argument for what is no `Error`), or Errc::mismatch with the text of what it
/// threw on another rank, or when a rank's digest of the bytes differs. All name the file.
void load_checkpoint_archive(Context& context, const std::filesystem::path& path,
                             const LoadState& load);

/// Reads part `index` of the archive. Throws Errc::invalid_argument, with the part and in words,
/// for what LibTorch's reader throws, and what `load` throws.
void load_checkpoint_part(torch::serialize::InputArchive& archive, int index,
                          const LoadState& load);

/// The values of modules as they are, kept without a copy while others are loaded in their place.
class ModuleValues {
 public:
  void keep(const torch::nn::Module& module);
  void put_back() const;

 private:
  struct Kept {
    torch::Tensor tensor;
    torch::Tensor before;
  };
  std::vector<Kept> all_;
};

/// Throws std::invalid_argument with the first tensor of the module that has another shape or dtype
/// in the archive, which LibTorch's reader does not mind. What is missing there is left to it.
void require_same_kind(const torch::nn::Module& module, torch::serialize::InputArchive& archive);

/// Whose `save` all ranks call, and which fills rank 0's archive: a `ShardedOptimizer`.
template <class Part>
concept SavedByAllRanks = requires {
  requires Part::kSaveIsCollective;
};

/// Everything `torch::save` takes, one after another: a module, its optimizer, a sampler; and
/// sharded optimizers of all ranks.
template <class... Parts>
void save_checkpoint(Context& context, const std::filesystem::path& path, const Parts&... parts) {
  const auto save = [&](torch::serialize::OutputArchive& archive) {
    const auto write = [&](int index, const auto& part) {
      using torch::operator<<;  // of tensors: not found by their types
      torch::serialize::OutputArchive one(archive.compilation_unit());
      one << part;
      archive.write(std::to_string(index), one);
    };
    // First what the others wait for: they need not know if something else cannot be saved.
    for (const bool of_all : {true, false}) {
      int index = 0;
      ((SavedByAllRanks<Parts> == of_all ? write(index++, parts) : void(index++)), ...);
    }
  };
  const auto help = [&] {
    const auto take_part = [](const auto& part) {
      torch::serialize::OutputArchive empty;
      if constexpr (SavedByAllRanks<std::decay_t<decltype(part)>>) part.save(empty);
    };
    (take_part(parts), ...);
  };
  save_checkpoint_archive(context, path, save, help);
}

/// The same parts in the same order. Modules are compared between the ranks afterwards, by a digest
/// of each tensor: Errc::mismatch on every rank names the first that differs. When anything fails,
/// on this rank or another, modules have the values that they had before; of optimizers and
/// samplers those before the one that failed are loaded.
template <class... Parts>
void load_checkpoint(Context& context, const std::filesystem::path& path, Parts&... parts) {
  ModuleValues before;
  const auto keep = [&before](const auto& part) {
    if constexpr (requires { NamedTensors::of(*part); }) before.keep(*part);
  };
  (keep(parts), ...);
  const auto read = [](auto& part) {
    return [&part](torch::serialize::InputArchive& archive) {
      using torch::operator>>;
      if constexpr (requires { NamedTensors::of(*part); }) require_same_kind(*part, archive);
      archive >> part;
    };
  };
  const auto compare = [&](const auto& part) {
    if constexpr (requires { NamedTensors::of(*part); }) {
      const Verification same = verify(context, NamedTensors::of(*part));
      if (!same) throw Error(Errc::mismatch, "load_checkpoint: " + same.first_difference);
    }
  };
  try {
    load_checkpoint_archive(context, path, [&](torch::serialize::InputArchive& archive) {
      int index = 0;
      (load_checkpoint_part(archive, index++, read(parts)), ...);
    });
    (compare(parts), ...);
  } catch (...) {
    before.put_back();
    throw;
  }
}

/// Of the default context.
template <class... Parts>
void save_checkpoint(const std::filesystem::path& path, const Parts&... parts) {
  save_checkpoint(context(), path, parts...);
}
template <class... Parts>
void load_checkpoint(const std::filesystem::path& path, Parts&... parts) {
  load_checkpoint(context(), path, parts...);
}

}  // namespace hvd

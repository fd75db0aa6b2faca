// Turns the file of --config-file into arguments that CLI11 reads before the command line.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/config_file.hpp"

namespace hvd::launcher {

struct ConfigWords {
  std::string path;                  ///< the path of the file; empty: there is none
  std::vector<ConfigEntry> entries;  ///< the options that the command line does not overrule
  std::vector<std::string> words;    ///< the same options as arguments

  /// Returns " (file, line n)" if an error message of CLI11 is about one of the entries, and an
  /// empty text otherwise.
  [[nodiscard]] std::string origin_of(const std::string& complaint) const;
};

/// Reads the file that --config-file names, if that option is in `own`, which holds the options of
/// the command line as `one_word` spells them. For options that may be given several times, the
/// values of the file come first. Throws LaunchError (usage).
[[nodiscard]] ConfigWords read_config_words(const CLI::App& app,
                                            const std::vector<std::string>& own);

/// Returns the word that CLI11 reads as this option with this value.
[[nodiscard]] std::string one_word(const std::string& option, const std::string& value);

}  // namespace hvd::launcher

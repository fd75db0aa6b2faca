#include "options.hpp"

#include <CLI/CLI.hpp>

namespace mnist {

std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app("Trains a small network on Fashion-MNIST on every rank of the job");
  app.add_option("--data", options.data, "Folder with the four *-ubyte.gz files")
      ->capture_default_str();
  app.add_option("--epochs", options.epochs)->check(CLI::NonNegativeNumber)->capture_default_str();
  auto* per_rank = app.add_option("--batch-size", options.batch_size, "Images per rank and step")
                       ->check(CLI::PositiveNumber)
                       ->capture_default_str();
  app.add_option("--global-batch", options.global_batch, "Images per step of all ranks together")
      ->check(CLI::PositiveNumber)
      ->excludes(per_rank);
  app.add_option("--lr", options.lr, "Learning rate for a global batch of 64; scaled with it")
      ->capture_default_str();
  app.add_option("--momentum", options.momentum)->capture_default_str();
  app.add_option("--seed", options.seed)->capture_default_str();
  app.add_flag("!--no-dropout", options.dropout, "Train without dropout");
  app.add_flag("!--no-sync", options.sync,
               "Do not communicate gradients: the replicas drift apart");
  app.add_option("--steps", options.steps, "Stop after this many steps")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--limit", options.limit, "Use only the first images of the training set")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Write the results here");
  app.add_option("--plot", options.plot, "Write the loss curve here, as SVG");
  app.add_option("--save-parameters", options.save_parameters,
                 "Write the bytes of all parameters here");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  return std::nullopt;
}

}  // namespace mnist

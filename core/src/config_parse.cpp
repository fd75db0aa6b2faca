#include "config_parse.hpp"

#include "config_place.hpp"
#include "config_reader.hpp"
#include "config_tuning.hpp"

namespace hvd {

Config parse_config(const Lookup& lookup, const Surroundings& ask) {
  const VariableReader read(lookup);
  Config config;
  read_place(read, ask, config);
  read_tuning(read, config);
  return config;
}

}  // namespace hvd

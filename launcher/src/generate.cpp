#include "generate.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace hvd::launcher {
namespace {

/// What bash's compgen offers for a value; empty: nothing to offer.
std::string offer_for(const OptionInfo& option) {
  if (!option.choices.empty()) {
    return fmt::format("compgen -W '{}' -- \"$word\"", fmt::join(option.choices, " "));
  }
  if (option.value == "FILE") return "compgen -f -- \"$word\"";
  if (option.value == "DIR") return "compgen -d -- \"$word\"";
  return "";
}

std::string roff(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\') {
      escaped += "\\e";
    } else if (c == '-') {
      escaped += "\\-";
    } else {
      escaped += c;
    }
  }
  // A line that begins with one of these would be a request.
  if (!escaped.empty() && (escaped.front() == '.' || escaped.front() == '\'')) {
    escaped.insert(0, "\\&");
  }
  return escaped;
}

constexpr std::string_view kCodes =
    "0|every rank exited 0\n"
    "a rank's own, or 128 + N|the rank that failed first exited with it, or was killed by signal "
    "N\n"
    "64|the command line\n"
    "69|a host that cannot be reached, or was lost\n"
    "70|a rank that exited 0 without hvd::shutdown() and took others with it, an agent that died, "
    "or a defect\n"
    "71|the system refused processes, descriptors or space\n"
    "76|another version of hvdrun on a host\n"
    "77|somebody who does not belong to the job\n"
    "124|--timeout\n"
    "126, 127|the program cannot be executed, was not found\n";

}  // namespace

std::string bash_completion(const std::vector<OptionInfo>& options) {
  std::vector<std::string> names;
  std::vector<std::string> with_value;
  std::string offers;
  for (const OptionInfo& option : options) {
    names.insert(names.end(), option.names.begin(), option.names.end());
    if (option.value.empty()) continue;
    with_value.insert(with_value.end(), option.names.begin(), option.names.end());
    const std::string offer = offer_for(option);
    if (offer.empty()) continue;
    offers += fmt::format("        {}) mapfile -t COMPREPLY < <({}); return ;;\n",
                          fmt::join(option.names, " | "), offer);
  }
  return fmt::format(R"(# bash completion for hvdrun; made by hvdrun --generate bash.
_hvdrun() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}} i
  COMPREPLY=()
  # The program's own words begin where the options of hvdrun end.
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case ${{COMP_WORDS[i]}} in
      --) break ;;
      {0}) ((++i)) ;;
      -* | =) ;;
      *) break ;;
    esac
  done
  if ((i < COMP_CWORD)); then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    return
  fi
  case $before in
    {0})
      case $before in
{1}      esac
      return
      ;;
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W '{2}' -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -c -- "$word"; compgen -f -- "$word")
  fi
}}
complete -o filenames -F _hvdrun hvdrun
)",
                     fmt::join(with_value, " | "), offers, fmt::join(names, " "));
}

std::string man_page(const std::vector<OptionInfo>& options, const std::string& version) {
  std::string page = fmt::format(
      ".TH HVDRUN 1 \"\" \"hvd {}\" \"User Commands\"\n"
      ".SH NAME\nhvdrun \\- start the ranks of an hvd program, watch them and end them together\n"
      ".SH SYNOPSIS\n"
      ".B hvdrun \\-np\n.I N\n[options]\n.I program\n[arguments]\n.br\n"
      ".B hvdrun status\n[\\fIJOB\\fR]\n"
      ".SH DESCRIPTION\n"
      "Starts\n.I program\nN times, on this host or on several, tells each copy which rank it is, "
      "shows what they print, and ends them together. Options end at the program's name, or at\n"
      ".BR \\-\\- .\n.PP\n"
      ".B hvdrun status\nsays how the ranks of a job get on that this user's hvdrun runs on this "
      "machine, and what each waits for.\n"
      ".SH OPTIONS\n",
      roff(version));
  for (const OptionInfo& option : options) {
    page += ".TP\n";
    std::string names;
    for (const std::string& name : option.names) {
      names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", roff(name));
    }
    if (!option.value.empty()) names += fmt::format(" \\fI{}\\fR", roff(option.value));
    page += fmt::format("{}\n{}.\n", names, roff(option.text));
  }
  page += ".SH EXIT STATUS\n";
  for (std::size_t begin = 0; begin < kCodes.size();) {
    const auto end = kCodes.find('\n', begin);
    const auto line = kCodes.substr(begin, end - begin);
    const auto bar = line.find('|');
    page += fmt::format(".TP\n.B {}\n{}.\n", roff(line.substr(0, bar)), roff(line.substr(bar + 1)));
    begin = end + 1;
  }
  return page;
}

}  // namespace hvd::launcher

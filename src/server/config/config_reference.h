// The parts of documents that describe the configuration, from the table of keys.
#pragma once

#include <string>

namespace tessera::server {

std::string ConfigTable();    // Markdown, of docs/reference/config.md
std::string ConfigExample();  // deploy/tesserad.toml: every key with its default, behind a #
std::string ConfigManual();   // tesserad.toml(5) for scdoc

}  // namespace tessera::server

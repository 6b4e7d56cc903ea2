// For the build: writes tesserad.toml(5) as scdoc reads it.
#include <cstdio>

#include "server/config/config_reference.h"

int main() { return std::fputs(tessera::server::ConfigManual().c_str(), stdout) < 0 ? 1 : 0; }

// Which library a shim stands for. Each shim defines its own `driver_library`.
#pragma once

namespace tessera::shim {

struct DriverLibrary {
  const char* file;         // as programs ask for it
  const char* variable;     // environment variable that names the real one
  const char* required[2];  // symbols without which a file of that name is something else
  int no_driver;            // what every function returns where there is none
};

extern const DriverLibrary driver_library;

}  // namespace tessera::shim

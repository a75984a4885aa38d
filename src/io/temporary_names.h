// Temporary names: files and folders under a passing name, which a signal that ends the process must remove first.
#pragma once

#include <string>

namespace swordfish::io {

// From now until forget_temporary(), SIGINT, SIGTERM and SIGHUP remove `path`, unless the program has handlers of its own for
// them: a file, or a folder whose files are remembered too. Say so before the name exists, so that no signal falls between.
// Thread-safe; at most 32 names at a time are kept, others are left to the destructors of their owners.
void remember_temporary(const std::string& path);
void forget_temporary(const std::string& path);

}  // namespace swordfish::io

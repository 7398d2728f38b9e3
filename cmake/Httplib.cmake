# cpp-httplib as the system has it. Its macros decide what its classes look like, so they must be those that its library
# was built with: pkg-config knows them.
find_package(PkgConfig REQUIRED)
pkg_check_modules(HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)

-- Scripts run inside Redis or Valkey (Lua 5.1), one transition a file.
std = "lua51"
max_line_length = 120
read_globals = { "redis", "cjson", "cmsgpack", "bit", "struct" }
globals = { "KEYS", "ARGV" }

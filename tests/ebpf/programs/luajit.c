// Runs a Lua file by the library libluajit, with the rest of the arguments in `arg`.
#include <stdlib.h>

// As in lua.h, which need not be installed.
typedef struct lua_State lua_State;
lua_State *luaL_newstate(void);
void luaL_openlibs(lua_State *state);
int luaL_loadfile(lua_State *state, const char *path);
int lua_pcall(lua_State *state, int arguments, int results, int handler);
void lua_createtable(lua_State *state, int count, int others);
void lua_pushstring(lua_State *state, const char *text);
void lua_rawseti(lua_State *state, int index, int number);
void lua_setfield(lua_State *state, int index, const char *name);
#define GLOBALS (-10002)

int main(int count, char **arguments)
{
    lua_State *state = luaL_newstate();
    if (!state || count < 2)
        return 1;
    luaL_openlibs(state);
    lua_createtable(state, count, 0);
    for (int index = 2; index < count; index++) {
        lua_pushstring(state, arguments[index]);
        lua_rawseti(state, -2, index - 1);
    }
    lua_setfield(state, GLOBALS, "arg");
    return luaL_loadfile(state, arguments[1]) || lua_pcall(state, 0, 0, 0);
}

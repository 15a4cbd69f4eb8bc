#!/bin/sh
# clean.sh ROOT PACKAGE: installs a package in a root of Debian as its administrator would, and uses it as a user who was
# made just now. ROOT is changed; nothing else is, and nothing stays mounted.
set -eu
cp "$2" "$1/tmp/$(basename "$2")"
exec sh "$(dirname "$0")/enter.sh" "$1" sh -euc '
package=$1
case $package in
    *.deb) dpkg --install "/tmp/$package" ;;
    *.rpm) rpm2cpio "/tmp/$package" | cpio --extract --make-directories --quiet --directory / ;;
    *.tar.gz) tar --extract --gzip --file "/tmp/$package" --directory /usr/local --strip-components 1 ;;
esac
user=user$$-$(echo "$package" | md5sum | cut -c1-6)
useradd --create-home "$user"
cat > "/home/$user/server.sh" <<"SERVER"
while read -r line; do
    case $line in
        *\"initialize\"*) echo "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"clean\",\"version\":\"1\"}}}" ;;
        *tools/call*) echo "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"called\"}]}}" ;;
        *tools/list*) echo "$line" | sed "s/.*\"id\":\([^,}]*\).*/{\"jsonrpc\":\"2.0\",\"id\":\1,\"result\":{\"tools\":[{\"name\":\"try\",\"inputSchema\":{\"type\":\"object\"}}]}}/" ;;
    esac
done
SERVER
exec setpriv --reuid "$user" --regid "$user" --init-groups env -i HOME="/home/$user" PATH=/usr/local/bin:/usr/bin:/bin sh -euc "
cd
mkdir project
mv server.sh project
cd project
agentsh doctor > ../doctor || [ \$? = 1 ]
agentsh demo > ../demo
tail -n 3 ../demo | grep attacks
agentsh run -- sh -c \"echo made > made; cat ~/doctor || echo hidden\"
grep -q made made
{
    echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":1,\\\"method\\\":\\\"initialize\\\",\\\"params\\\":{\\\"protocolVersion\\\":\\\"2025-06-18\\\",\\\"capabilities\\\":{},\\\"clientInfo\\\":{\\\"name\\\":\\\"c\\\",\\\"version\\\":\\\"1\\\"}}}\"
    echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"method\\\":\\\"notifications/initialized\\\"}\"
    echo \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":2,\\\"method\\\":\\\"tools/call\\\",\\\"params\\\":{\\\"name\\\":\\\"try\\\",\\\"arguments\\\":{}}}\"
    sleep 3
} | agentsh mcp run --id clean -- sh server.sh | grep called
agentsh mcp calls | grep try
agentsh report latest > ../report
grep -q \"tool calls\\|calls\" ../report
agentsh events verify
agentsh man run > /dev/null 2>&1 || true
echo WORKS as \$(id -un)
"' sh "$(basename "$2")"

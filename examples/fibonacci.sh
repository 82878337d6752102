# A few lines for a shell to chew on: the demo traces the shell while it runs them.
fibonacci() {
    if (( $1 < 2 )); then result=$1; return; fi
    local n=$1 first
    fibonacci $((n - 1)); first=$result
    fibonacci $((n - 2)); (( result += first ))
}

fibonacci 8
echo "fibonacci 8 = $result"
echo "a child process says: $(printf '%s' hello)"

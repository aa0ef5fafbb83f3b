# completion.cmake - the completions that the command itself prints, laid down where bash, zsh and fish look for them.
set(completions)
foreach(shell bash zsh fish)
    set(out ${CMAKE_BINARY_DIR}/completion/holdfast.${shell})
    add_custom_command(OUTPUT ${out}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/completion
        COMMAND sh -c "\"$1\" completion ${shell} >\"$2.new\" && mv \"$2.new\" \"$2\"" sh $<TARGET_FILE:holdfast> ${out}
        DEPENDS holdfast VERBATIM)
    list(APPEND completions ${out})
endforeach()
add_custom_target(completion ALL DEPENDS ${completions})
install(FILES ${CMAKE_BINARY_DIR}/completion/holdfast.bash
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME holdfast)
install(FILES ${CMAKE_BINARY_DIR}/completion/holdfast.zsh
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _holdfast)
install(FILES ${CMAKE_BINARY_DIR}/completion/holdfast.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

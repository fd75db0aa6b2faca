include("${CMAKE_CURRENT_LIST_DIR}/common.cmake")
run_failing(
  "configure" "this hvd was built without the component 'torch'"
  ${configure_command} -S "${SOURCE_DIR}/torch_app")

// RUN: xdsl-opt %s -p 'pebble-choose-quantized-kernels{prices=emerald_rapids kernels="a=byte_lookup from 1, byte_tiles from 8"}' | filecheck %s

// What is chosen on CPUs that multiply tiles can be asked for as well.
// CHECK-LABEL: @tiles
func.func @tiles(%x: tensor<?x64xf32>) -> tensor<?x16xf32> {
  %w = pebble.constant dense<1.0> : tensor<64x16xf32>
  %b = pebble.constant dense<4.0> : tensor<16xf32>
  // CHECK: kernel <byte_lookup from 1, byte_tiles from 8, blocks [byte_tiles: 1], predicted [{{.*}}], "asked for">
  %y_q = pebble.convert %x : (tensor<?x64xf32>) -> tensor<?x64x!pebble.codes<u8 scale 0.5 zero 128>>
  %y = pebble.linear %y_q, %w bias %b times %b : tensor<16xf32> {pebble.node = "a"} : (tensor<?x64x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<64x16xf32>, tensor<16xf32>) -> tensor<?x16xf32>
  func.return %y : tensor<?x16xf32>
}

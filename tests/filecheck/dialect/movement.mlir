// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<?x4x6xf32>, %y: tensor<?x4x2xf32>) {
  %flat = pebble.reshape %x to <[d0, 24]> : (tensor<?x4x6xf32>) -> tensor<?x24xf32>
  %rows = pebble.reshape %x to <[_, 6]> : (tensor<?x4x6xf32>) -> tensor<?x6xf32>
  %wide = pebble.reshape %x to <[1, d1, _]> {pebble.node = "view"} : (tensor<?x4x6xf32>) -> tensor<1x4x?xf32>
  %swapped = pebble.transpose %x axes [0, 2, 1] : (tensor<?x4x6xf32>) -> tensor<?x6x4xf32>
  %both = pebble.concat %x, %y axis 2 : (tensor<?x4x6xf32>, tensor<?x4x2xf32>) -> tensor<?x4x8xf32>
  %a, %b = pebble.split %both axis 2 : (tensor<?x4x8xf32>) -> (tensor<?x4x6xf32>, tensor<?x4x2xf32>)
  %first = pebble.take %y axis 0 at -1 : (tensor<?x4x2xf32>) -> tensor<4x2xf32>
  func.return
}

// CHECK:      %flat = pebble.reshape %x to <[d0, 24]> : (tensor<?x4x6xf32>) -> tensor<?x24xf32>
// CHECK-NEXT: %rows = pebble.reshape %x to <[_, 6]> : (tensor<?x4x6xf32>) -> tensor<?x6xf32>
// CHECK-NEXT: %wide = pebble.reshape %x to <[1, d1, _]> {pebble.node = "view"} : (tensor<?x4x6xf32>) -> tensor<1x4x?xf32>
// CHECK-NEXT: %swapped = pebble.transpose %x axes [0, 2, 1] : (tensor<?x4x6xf32>) -> tensor<?x6x4xf32>
// CHECK-NEXT: %both = pebble.concat %x, %y axis 2 : (tensor<?x4x6xf32>, tensor<?x4x2xf32>) -> tensor<?x4x8xf32>
// CHECK-NEXT: %a, %b = pebble.split %both axis 2 : (tensor<?x4x8xf32>) -> (tensor<?x4x6xf32>, tensor<?x4x2xf32>)
// CHECK-NEXT: %first = pebble.take %y axis 0 at -1 : (tensor<?x4x2xf32>) -> tensor<4x2xf32>

// GENERIC: %flat = "pebble.reshape"(%x) <{target = #pebble.target_shape<[d0, 24]>}> : (tensor<?x4x6xf32>) -> tensor<?x24xf32>
// GENERIC: %swapped = "pebble.transpose"(%x) <{axes = array<i64: 0, 2, 1>}> : (tensor<?x4x6xf32>) -> tensor<?x6x4xf32>

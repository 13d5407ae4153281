// RUN: xdsl-opt %s --print-op-generic | xdsl-opt | filecheck %s
// RUN: xdsl-opt %s --print-op-generic | filecheck %s --check-prefix GENERIC

func.func @main(%x: tensor<?x4xf32>, %y: tensor<?x1xf32>, %b: tensor<4xf32>, %a: tensor<f32>) {
  %relu = pebble.activate <relu> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %leaky = pebble.activate <leaky_relu(0.01)> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %clip = pebble.activate <clip(-inf, 6)> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %small = pebble.activate <elu(1.0e-30)> %x {pebble.node = "elu"} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  %add = pebble.add %x, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %sub = pebble.sub %x, %y : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32>
  %mul = pebble.mul %a, %x : (tensor<f32>, tensor<?x4xf32>) -> tensor<?x4xf32>
  %div = pebble.div %y, %b : (tensor<?x1xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  %prelu = pebble.prelu %x, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  func.return
}

// CHECK:      %relu = pebble.activate <relu> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %leaky = pebble.activate <leaky_relu(0.01)> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %clip = pebble.activate <clip(-inf, 6.0)> %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %small = pebble.activate <elu(1.0e-30)> %x {pebble.node = "elu"} : (tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %add = pebble.add %x, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %sub = pebble.sub %x, %y : (tensor<?x4xf32>, tensor<?x1xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %mul = pebble.mul %a, %x : (tensor<f32>, tensor<?x4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %div = pebble.div %y, %b : (tensor<?x1xf32>, tensor<4xf32>) -> tensor<?x4xf32>
// CHECK-NEXT: %prelu = pebble.prelu %x, %b : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>

// GENERIC: %leaky = "pebble.activate"(%x) <{activation = #pebble.activation<leaky_relu(0.01)>}> : (tensor<?x4xf32>) -> tensor<?x4xf32>
// GENERIC: %add = "pebble.add"(%x, %b) : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
